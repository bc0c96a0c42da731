package peer

// Member is one replica of the provider.
type Member struct {
	// ID identifies the replica while its process or pod lives. All replicas know it by
	// the same ID.
	ID string
	// URL is the base of its HTTP routes, without a trailing slash.
	URL string
	// leaving: the replica is one of Membership.Leaving.
	leaving bool
}

// Membership lists the replicas.
type Membership interface {
	// Members lists the ready replicas in any order, with this one if it is ready. It
	// is called for every request, so it must not wait or hold a lock for long. The
	// caller must not change the result.
	Members() []Member
	// Leaving lists the replicas that stop, which are no members any more: they take no new
	// requests, finish theirs, and may use instances meanwhile. The caller must not change
	// the result.
	Leaving() []Member
	// Self returns this replica's ID.
	Self() string
}
