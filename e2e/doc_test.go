// Package e2e tests the program as people use it: the real binary, behind the
// real stock OpenFaaS gateway or alone, driven through OpenFaaS's own client
// (go-sdk, the code that faas-cli deploys with) and plain HTTP.
//
// Every test runs its own provider with its own state directory. Processes are
// only ever signalled by their pid, and whatever a test leaves behind, be it a
// process, a cgroup or a socket, is its failure.
package e2e
