// Package deployments tests ordinary functions on a real API server, scheduler and
// controller manager. Nodes and pods are kwok's: what answers for a pod is a server
// of the test's, for as long as the pod exists.
package deployments
