package abi

// ImportRequest is the function request (buf, limit) -> len of [ModuleAdmission] and
// [ModuleHooks].
const ImportRequest = "request"
