package cri

var (
	Resources    = resources
	CgroupParent = cgroupParent
)
