// Package peer makes several replicas of the provider work together. One replica, the owner,
// has a function's queue, so that the function's requests share batches; the others hand their
// requests on to it. The replica that leads polls the others for the load that they have seen.
// The package does not elect the leader or find the replicas: Options.Leading and [Membership]
// say who they are. Begin with [Group] for the transport and [Replica] for the controller's side.
package peer
