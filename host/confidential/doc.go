// Package confidential defines the rule for confidential data of the objects that guests see. Such
// data is withheld from everything that outlives a call: recordings, shadows, logs, policies that
// only monitor, audits, reports and traces.
//
// A [Rule] finds confidential values in JSON and in protobuf. They are of two classes:
//
//   - Sealed: data, stringData and annotations of Secrets, tokens of TokenReviews and
//     TokenRequests, and the kinds and fields of the Rule. No output of the guest in the call
//     outlives it, since the guest may express them in other words.
//   - Repeated: values of environment variables. They are masked in place, and wherever a guest
//     repeats one, or eight bytes of one, as they are, in quotes, in base64 or in hexadecimal.
//
// A [Stain] holds the values that a call has seen.
package confidential
