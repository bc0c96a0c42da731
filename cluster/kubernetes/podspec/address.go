package podspec

import (
	"net"
	"net/netip"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Address returns the host and port at which a pod's instance answers, "" while the pod has no
// address. Of a pod with addresses of both families it is the first that this machine can reach.
func Address(pod *corev1.Pod) string {
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 1 {
		ip = choose(pod.Status.PodIPs, ownFamilies())
	}
	if ip == "" {
		return ""
	}
	return net.JoinHostPort(ip, strconv.Itoa(Port))
}

// families are the families of addresses that a machine has.
type families struct{ v4, v6 bool }

// choose returns the first address of a family that a machine has, otherwise the first one.
func choose(ips []corev1.PodIP, has families) string {
	for _, each := range ips {
		ip, err := netip.ParseAddr(each.IP)
		if err == nil && (ip.Unmap().Is4() && has.v4 || ip.Is6() && !ip.Is4In6() && has.v6) {
			return each.IP
		}
	}
	return ips[0].IP
}

// ownFamilies reads which families of addresses this machine has besides the loopback's and the
// link-local ones, once: a pod's do not change.
var ownFamilies = sync.OnceValue(func() (has families) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return families{}
	}
	for _, a := range all {
		network, ok := a.(*net.IPNet)
		if !ok || !network.IP.IsGlobalUnicast() {
			continue
		}
		if network.IP.To4() != nil {
			has.v4 = true
		} else {
			has.v6 = true
		}
	}
	return has
})
