// Package e2e tests the program as users run it: the real binary, alone or behind the
// stock OpenFaaS gateway. Tests drive it with OpenFaaS's own client (go-sdk, the code
// that faas-cli deploys with) and with plain HTTP. Begin with main_test.go and
// daemon_test.go.
//
// Every test runs its own provider with its own state directory. Tests signal processes
// only by their pid. A test fails if it leaves a process, a cgroup or a socket behind.
package e2e
