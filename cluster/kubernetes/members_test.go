package kubernetes

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func slice(name string, family discovery.AddressType, ports []discovery.EndpointPort, endpoints ...discovery.Endpoint) *discovery.EndpointSlice {
	return &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, AddressType: family, Ports: ports, Endpoints: endpoints}
}

func endpoint(pod, address string, ready, terminating *bool) discovery.Endpoint {
	e := discovery.Endpoint{Addresses: []string{address}, Conditions: discovery.EndpointConditions{Ready: ready, Terminating: terminating}}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
	}
	return e
}

func TestReady(t *testing.T) {
	one := []discovery.EndpointPort{{Name: new("http"), Port: new(int32(8081))}}
	two := []discovery.EndpointPort{{Name: new("metrics"), Port: new(int32(9000))}, {Name: new("http"), Port: new(int32(8081))}}
	for what, c := range map[string]struct {
		slices []*discovery.EndpointSlice
		port   string
		want   []found
	}{
		"none": {},
		"those that are ready": {[]*discovery.EndpointSlice{slice("s", "IPv4", one,
			endpoint("b", "10.0.0.2", new(true), nil), endpoint("a", "10.0.0.1", nil, new(false)),
			endpoint("c", "10.0.0.3", new(false), nil), endpoint("d", "10.0.0.4", new(true), new(true)), discovery.Endpoint{})},
			"http", []found{{"a", "http://10.0.0.1:8081"}, {"b", "http://10.0.0.2:8081"}}},
		"of two families one": {[]*discovery.EndpointSlice{slice("x", "IPv6", one, endpoint("a", "fd00::1", nil, nil), endpoint("b", "fd00::2", nil, nil)), slice("y", "IPv4", one, endpoint("a", "10.0.0.1", nil, nil))},
			"http", []found{{"a", "http://10.0.0.1:8081"}, {"b", "http://[fd00::2]:8081"}}},
		"the port by name":           {[]*discovery.EndpointSlice{slice("s", "IPv4", two, endpoint("a", "10.0.0.1", nil, nil))}, "http", []found{{"a", "http://10.0.0.1:8081"}}},
		"the only port":              {[]*discovery.EndpointSlice{slice("s", "IPv4", one, endpoint("a", "10.0.0.1", nil, nil))}, "", []found{{"a", "http://10.0.0.1:8081"}}},
		"no port of the name":        {[]*discovery.EndpointSlice{slice("s", "IPv4", two, endpoint("a", "10.0.0.1", nil, nil))}, "web", nil},
		"an endpoint that is no pod": {[]*discovery.EndpointSlice{slice("s", "IPv4", one, endpoint("", "10.0.0.1", nil, nil))}, "http", []found{{"10.0.0.1", "http://10.0.0.1:8081"}}},
	} {
		if got := pods(c.slices, c.port, isReady); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
	stopping := endpoint("c", "10.0.0.3", new(false), new(true))
	stopping.Conditions.Serving = new(false)
	all := []*discovery.EndpointSlice{slice("s", "IPv4", one, endpoint("a", "10.0.0.1", new(true), nil), endpoint("b", "10.0.0.2", new(false), new(false)), stopping)}
	if got := pods(all, "http", isLeaving); !slices.Equal(got, []found{{"c", "http://10.0.0.3:8081"}}) {
		t.Errorf("leaving: %v", got)
	}
}
