// Package policyserver is a replacement for Kubewarden's policy-server. It reads the policies.yml
// written by Kubewarden's controller, and answers the requests of the controller's webhooks, its
// audit scanner and other clients.
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
//	/audit/{id}          the same, with the verdict itself, regardless of the mode
//	/validate_raw/{id}   {"request": …} of any JSON, answered by {"response": …}
//
// All paths accept POST with application/json. A request that is not a review gets an HTTP code and
// {"message": …, "status": code}: 400 for a body that is not JSON, 404 for an id missing in
// policies.yml, 405, 413, 415, 422 for other JSON, and 503 before policies.yml was read. Every
// other answer is a review with 200.
//
// # Policies
//
// A change of policies.yml loads only the changed policies. A change of mode, message or
// allowedToMutate needs no loading. A policy that cannot be loaded rejects its requests with 500
// and the reason, and the others serve. If an earlier version of it serves, that version continues,
// unless the new version has fewer grants, since revoked grants must not be used. Modules that
// could not be fetched are tried again.
//
// [Guests] limits the resources of policies exactly: memory, instructions and time of each
// evaluation. A policy may use only host capabilities granted by policies.yml and, if it belongs to
// a namespace, by Guests as well.
package policyserver
