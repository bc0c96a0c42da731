// Package peer is how several replicas of the provider work together. A function's
// queue is at one of them, its owner, so that its requests still meet in one batch:
// the others hand their requests on. The replica that scales pulls from the others
// what they have seen of the load. Who is there is asked of a [Membership].
package peer
