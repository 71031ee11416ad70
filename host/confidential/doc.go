// Package confidential holds the rule of what is confidential about the objects that guests see,
// and what is withheld about it from everything that outlives a call: recordings, shadows, logs,
// policies that only monitor, audits, reports and traces.
//
// A [Rule] finds confidential values in JSON and in protobuf. They are of two classes:
//
//   - Sealed: data, stringData and annotations of Secrets, tokens of TokenReviews and
//     TokenRequests, and the kinds and fields of the Rule. Nothing that a guest says in the call
//     outlives it, since the guest may say them in other words.
//   - Repeated: values of environment variables. They are masked where they stand, and wherever
//     a guest repeats one, or eight bytes of one, as they are, in quotes, in base64 or in
//     hexadecimal.
//
// A [Stain] holds those that a call has seen.
package confidential
