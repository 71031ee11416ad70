// Package capabilities answers what policies of Kubewarden ask their host for beyond the
// request: objects of the cluster, artifacts in registries, addresses of host names, the
// rights of users, and whether certificates are trusted.
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
// A policy may ask for nothing unless its configuration says so, see [Scope]: which
// operations, and about which kinds, namespaces, repositories and host names. A call that is
// not granted returns an error to the policy that names the missing grant, and is counted.
//
// # Bounds
//
// Answers about artifacts, names and rights are kept in one cache for all policies, which is
// bounded in bytes and entries, and for [Config].TTL at most. Policies that ask the same at the
// same time share one question. A policy has at most eight questions of its own under way and
// asks at most 64 in a request; each ends with the time of the policy's call, and what it
// began ends after [Config].Timeout. A slow registry keeps an instance of the policies that
// ask it waiting, and nothing else. Errors are not kept.
package capabilities
