// Package deployments tests ordinary functions on a real API server, scheduler and
// controller manager. kwok simulates nodes and pods. A server in the test answers for
// each pod as long as the pod exists. Begin with rig_test.go.
package deployments
