package command

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// The gateway makes URLs of the environment's hosts and ports. All are such that it reaches the
// provider, which may listen at an address of IPv6.
func TestGatewayEnvironment(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:8081": "10.0.0.1", ":8081": "127.0.0.1", "[::]:8081": "127.0.0.1", "[::1]:8081": "[::1]", "[fd00::1]:8081": "[fd00::1]",
	} {
		env, err := gatewayPlan{provider: address, nats: strings.Replace(address, "8081", "4222", 1)}.environment()
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range []string{"functions_provider_url=http://" + want + ":8081/", "faas_prometheus_host=" + want, "faas_prometheus_port=8081", "faas_nats_address=" + want, "faas_nats_port=4222"} {
			if !slices.Contains(env, pair) {
				t.Errorf("%s: no %s", address, pair)
			}
		}
		if _, err := url.Parse("http://" + want + ":8081/api/v1/query"); err != nil {
			t.Error(err)
		}
	}
}
