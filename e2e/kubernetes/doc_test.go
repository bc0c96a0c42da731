// Package kubernetes runs the end-to-end tests of package e2e on a real Kubernetes: a
// control plane, and a real node whose kubelet and containerd run the functions. Begin
// with suite_test.go.
package kubernetes_test
