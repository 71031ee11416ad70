// Package e2e tests the registries of host/oci against registries that others wrote.
package e2e
