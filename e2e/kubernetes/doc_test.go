// Package kubernetes runs the end-to-end tests of package e2e on a real Kubernetes:
// its own control plane, and a real node whose kubelet and containerd run the
// functions.
package kubernetes_test
