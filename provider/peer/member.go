package peer

// Member is one replica of the provider.
type Member struct {
	// ID is the replica's for as long as its process or pod lives, the same to
	// all replicas.
	ID string
	// URL is where its HTTP routes are, without a slash at the end.
	URL string
}

// Membership tells which replicas there are.
type Membership interface {
	// Members lists the replicas that are ready, this one included if it is, in
	// any order. It is asked on a request's way: it must not wait or lock long,
	// and nobody may change what it returns.
	Members() []Member
	// Self is this replica's ID.
	Self() string
}
