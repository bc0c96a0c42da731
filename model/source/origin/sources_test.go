package origin

import (
	"net/netip"
	"testing"
)

// TestPublic: no address of the machine, its network or its cloud counts as public.
func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "64:ff9b::5db8:d822": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "255.255.255.255": false, "224.0.0.1": false, "::1": false, "::": false, "fe80::1": false, "fd00::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "168.63.129.16": false, "2001:db8::1": false, "::127.0.0.1": false,
	} {
		if got := public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestSources: names allow, whatever their address, and parts of names do not.
func TestSources(t *testing.T) {
	for _, wrong := range []string{"", "https://x", "a b", "x/8", "/absent-directory"} {
		if _, err := ParseSources([]string{wrong}); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
