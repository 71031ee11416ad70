// Package capabilities implements the host capabilities of Kubewarden policies: objects of the
// cluster, artifacts in registries, addresses of host names, the rights of users, and the trust in
// certificates.
//
// A server has one [Provider] for all its policies:
//
//	provider, err := capabilities.NewProvider(capabilities.Config{
//		Registry: ociregistry.New(client),
//		Resolver: net.DefaultResolver,
//	})
//
// # Grants
//
// A policy may ask for nothing unless its configuration grants it, see [Scope]. A scope names
// operations, kinds, namespaces, repositories and host names. A call without a grant is counted,
// and returns an error that names the missing grant.
//
// # Bounds
//
// Answers about artifacts, names and rights are kept in one cache for all policies, for
// [Config].TTL at most. The cache is bounded in bytes and entries. Policies that ask the same
// question at the same time share one request. A policy has at most eight requests under way, and
// asks at most 64 questions in an admission request. A question ends with the time of the policy's
// call, and the request that it began ends after [Config].Timeout. A slow registry delays only the
// instances of the policies that ask it. Errors are not cached.
package capabilities
