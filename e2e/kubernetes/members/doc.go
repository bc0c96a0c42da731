// Package members tests against a real API server that the provider finds its other
// replicas. Begin with members_test.go.
package members
