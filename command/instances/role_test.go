package instances

import "testing"

// A name of a role that is taken panics.
func TestTwoRolesOfAName(t *testing.T) {
	defer func(before []Role) { roles = before }(roles)
	Register(Role{Name: "one"})
	defer func() {
		if recover() == nil {
			t.Error("two roles have one name")
		}
	}()
	Register(Role{Name: "one"})
}
