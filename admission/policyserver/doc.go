// Package policyserver serves policies in the way of Kubewarden's policy-server: it reads the
// policies.yml that Kubewarden's controller writes, and answers the requests that the
// controller's webhooks, its audit scanner and other clients send.
//
//	server, err := policyserver.New(policyserver.Config{
//		Runtime: rt,
//		Source:  func(module string) (host.Source, error) { … },
//	})
//	…
//	err = server.FollowFile(ctx, "/config/policies.yml")
//	…
//	http.ListenAndServeTLS(addr, cert, key, server.Handler())
//
// # Paths
//
//	/validate/{id}       an AdmissionReview, answered by one
//	/audit/{id}          the same, with the verdict itself: whatever mode the policy has
//	/validate_raw/{id}   {"request": …} of any JSON, answered by {"response": …}
//
// All are for POST with application/json. A request that is no review is answered with an HTTP
// code and {"message": …, "status": code}: 400 for what is no JSON, 404 for an id that
// policies.yml does not have, 405, 413, 415, 422 for another JSON, and 503 before policies.yml
// was read. Everything else is a review with 200.
//
// # Policies
//
// A change of policies.yml loads the policies that it changes, and no others. Mode, message
// and allowedToMutate need no loading. A policy that cannot be loaded rejects its requests with
// 500 and the reason, and the others serve. If an earlier version of it serves, that goes
// on, unless the new version is granted less: what was taken away must not be used.
// What could not be fetched is tried again.
//
// What a policy may use is bounded exactly, see [Guests]: memory, instructions and time of
// each evaluation. It may ask the host for nothing but what policies.yml grants and, if it
// belongs to a namespace, Guests too.
package policyserver
