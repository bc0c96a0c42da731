package cluster

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// MaxShares is the maximum number of instances on one GPU. MPS serves at most so many
	// processes (48 from Volta on).
	MaxShares = 48
	// WholeDevice is the share of a whole GPU, in %.
	WholeDevice = 100
	// ShareStep is the step of shares in %, see [DeviceRoom.Whole].
	ShareStep = 10
)

// DeviceRoom is one GPU of a node, or one MIG instance, and what it has free. An instance with
// a share needs one device with enough of both multiprocessors and memory: with 40 % free on
// each of two, there is no room for 50 %.
type DeviceRoom struct {
	UUID string `json:"uuid"`
	// Total and Free have GPU and GPUMemory only. The GPU of a MIG instance is its part of the
	// whole GPU's multiprocessors.
	Total Resources `json:"total"`
	Free  Resources `json:"free"`
	// Others is what instances hold that the caller does not see, as [Node.Others].
	Others Resources `json:"others,omitzero"`
	// Instances is the number of instances on it, parked ones included.
	Instances int `json:"instances,omitzero"`
	// Whole: it cannot be shared, for example because MPS is missing. It takes only instances
	// that plan with all of it, up to a step of shares: on a MIG instance with 42 % those
	// with 40 %, because a smaller share would waste the rest.
	Whole bool `json:"whole,omitempty"`
	// Kind names its model and driver, on which times depend; "" if that is not known.
	Kind string `json:"kind,omitempty"`
	// Lost says why it cannot be used any more; "" if it can.
	Lost string `json:"lost,omitempty"`
	// Claimed: its instances share a ResourceClaim, so all of them are in one namespace: in Namespace,
	// "" as long as there are none.
	Claimed   bool   `json:"claimed,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// vacated: the plan stops the last instance of Namespace.
	vacated bool
}

// Tenant says which devices an instance may use. Its zero value may use all.
type Tenant struct {
	// Namespace is the function's: others that share a claim of a device are in the same one. "" is any.
	Namespace string
	// Kinds has the kinds of devices on which the function's times are known ([Kinds]); "" is any.
	Kinds string
}

// NoKind is the kind of no device, for [Tenant].
const NoKind = "-"

// Kinds joins kinds of devices, in any order, for [Tenant]: names compare as one value.
func Kinds(names []string) string {
	if len(names) <= 1 {
		return strings.Join(names, "")
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), "\n")
}

// Compare orders tenants.
func (t Tenant) Compare(o Tenant) int {
	return cmp.Or(cmp.Compare(t.Namespace, o.Namespace), cmp.Compare(t.Kinds, o.Kinds))
}

// Serves reports whether the tenant's instances may use the device.
func (d *DeviceRoom) Serves(t Tenant) bool {
	return (d.Namespace == "" || d.vacated || t.Namespace == "" || d.Namespace == t.Namespace) && d.isOf(t.Kinds)
}

// isOf reports whether the device's kind is one of these.
func (d *DeviceRoom) isOf(kinds string) bool {
	for len(kinds) > 0 && d.Kind != "" {
		kind, rest, _ := strings.Cut(kinds, "\n")
		if kind == d.Kind {
			return true
		}
		if kinds = rest; rest == "" {
			return false
		}
	}
	return true
}

// Has reports whether an instance that is on the device already can take need there.
func (d *DeviceRoom) Has(need Resources) bool {
	return d.Lost == "" && need.GPU <= d.Free.GPU && need.GPUMemory <= d.Free.GPUMemory
}

// Fits reports whether an instance with the share need has room on the device.
func (d *DeviceRoom) Fits(need Resources) bool {
	return d.Has(need) && d.Instances < MaxShares && (!d.Whole || need.GPU > d.Total.GPU-ShareStep)
}

// BestDevice chooses the device of a share for a tenant: among those that serve it and have room the one
// with the fewest multiprocessors free, then the least memory, then the first. Whole devices thus stay
// free for large shares. It returns -1 if none has room.
func BestDevice(devices []DeviceRoom, need Resources, t Tenant) int {
	best := -1
	for i := range devices {
		if devices[i].Fits(need) && devices[i].Serves(t) && (best < 0 || CompareDevices(&devices[i], &devices[best]) < 0) {
			best = i
		}
	}
	return best
}

// ChooseDevice is [BestDevice] with a wish: that device is taken as long as it has room, otherwise another
// one of its kind.
func ChooseDevice(devices []DeviceRoom, need Resources, wish string) int {
	i := slices.IndexFunc(devices, func(d DeviceRoom) bool { return d.UUID == wish })
	if i < 0 || !devices[i].Fits(need) {
		kind := ""
		if i >= 0 {
			kind = devices[i].Kind
		}
		return BestDevice(devices, need, Tenant{Kinds: kind})
	}
	return i
}

// CompareDevices orders devices by free multiprocessors, then by free memory.
func CompareDevices(a, b *DeviceRoom) int {
	return cmp.Or(cmp.Compare(a.Free.GPU, b.Free.GPU), cmp.Compare(a.Free.GPUMemory, b.Free.GPUMemory))
}

// OnDevice returns the part of r that is on a device: multiprocessors and memory.
func (r Resources) OnDevice() Resources { return Resources{GPU: r.GPU, GPUMemory: r.GPUMemory} }

// SumDevices returns what the usable devices have together, in all and free.
func SumDevices(devices []DeviceRoom) (total, free Resources) {
	for i := range devices {
		if d := &devices[i]; d.Lost == "" {
			total, free = total.Add(d.Total), free.Add(d.Free)
		}
	}
	return total, free
}

// Fits reports whether an instance of a tenant that takes need has room on the node, and on one of its
// devices if it has a share and the node lists its devices. A node that lists none has its GPUs
// as one.
func (n *Node) Fits(need Resources, t Tenant) bool {
	own, free := n.Beside(need)
	return own.Fits(free) && (n.Devices == nil || need.OnDevice() == Resources{} || BestDevice(n.Devices, need, t) >= 0)
}

// FitsOn is Fits for an instance that has a device already, for example one that is unparked.
func (n *Node) FitsOn(need Resources, device string) bool {
	if own, free := n.Beside(need); !own.Fits(free) {
		return false
	}
	if i := n.device(device); i >= 0 {
		return n.Devices[i].Has(need)
	}
	return n.Devices == nil || need.OnDevice() == Resources{}
}

// device returns the index of a device, -1 if there is none.
func (n *Node) device(uuid string) int {
	return slices.IndexFunc(n.Devices, func(d DeviceRoom) bool { return d.UUID == uuid })
}

// Start takes what a new instance of a tenant needs, and returns the device that [BestDevice] chooses for its
// share; "" if it has none or there is none with room. Call Fits before.
func (n *Node) Start(need Resources, t Tenant) (device string) {
	if need.OnDevice() != (Resources{}) {
		if i := BestDevice(n.Devices, need, t); i >= 0 {
			device = n.Devices[i].UUID
		}
	}
	n.Hold(need, device)
	if i := n.device(device); i >= 0 && n.Devices[i].Claimed {
		n.Devices[i].Namespace = t.Namespace
	}
	return device
}

// Hold takes what an instance on that device holds; "" is none.
func (n *Node) Hold(held Resources, device string) { n.book(n.mapIn(held), device, 1) }

// Drop is the inverse of Hold.
func (n *Node) Drop(held Resources, device string) {
	n.book(Resources{}.Sub(n.mapOut(held)), device, -1)
}

// Change takes more, or less if it is negative, for an instance that stays on its device.
func (n *Node) Change(more Resources, device string) { n.book(more, device, 0) }

// book takes more of the node and of a device. Copies of a node share its list of devices, so it
// changes a copy of that.
func (n *Node) book(more Resources, device string, instances int) {
	i := n.device(device)
	if i >= 0 && n.Devices[i].Lost != "" { // Total and Free have no lost devices.
		n.Free = n.Free.Sub(Resources{CPU: more.CPU, Memory: more.Memory})
	} else {
		n.Free = n.Free.Sub(more)
	}
	if i < 0 || instances == 0 && more.OnDevice() == (Resources{}) {
		return
	}
	n.Devices = slices.Clone(n.Devices)
	d := &n.Devices[i]
	d.Free, d.Instances = d.Free.Sub(more.OnDevice()), max(0, d.Instances+instances)
	if instances != 0 {
		d.vacated = d.Claimed && d.Instances == 0
	}
}

// Empty returns the first count whole GPUs on which nothing is, for a process that gets them to
// itself. It returns nil if there are fewer.
func (n *Node) Empty(count int) (devices []string) {
	for i := range n.Devices {
		if d := &n.Devices[i]; len(devices) < count && d.Lost == "" && d.Instances == 0 && d.Free == d.Total && d.Total.GPU == WholeDevice {
			devices = append(devices, d.UUID)
		}
	}
	if len(devices) < count {
		return nil
	}
	return devices
}

// Take takes what an instance holds of the node, if held is that: a share of one device, or, for a
// process, devices as a whole.
func (n *Node) Take(s *InstanceSpec, held Resources) { n.take(s, n.mapIn(held)) }

// take is Take for what the instance holds in addition to what others map.
func (n *Node) take(s *InstanceSpec, held Resources) {
	if s.Kind != Process || n.Devices == nil {
		n.book(held, s.Device(), 1)
		return
	}
	n.Free = n.Free.Sub(held)
	for _, device := range s.Devices {
		if i := n.device(device); i >= 0 {
			// What is requested counts on the node already; of the device nothing is left.
			more := n.Devices[i].Total
			n.Free.GPU += WholeDevice
			n.book(more, device, 1)
		}
	}
}

// Clear sets what is free to what there is if no instance that the caller sees holds anything.
func (n *Node) Clear() {
	n.Free, n.Devices, n.Mapped = n.Total.Sub(n.Others), slices.Clone(n.Devices), othersOf(n.Mapped)
	for i := range n.Devices {
		d := &n.Devices[i]
		d.Free, d.Instances = d.Total.Sub(d.Others), 0
	}
}

// Same reports whether two nodes do not differ.
func (n Node) Same(o *Node) bool {
	return n.Name == o.Name && n.Type == o.Type && n.Total == o.Total && n.Free == o.Free && n.Others == o.Others && slices.Equal(n.Devices, o.Devices) && slices.Equal(n.Mapped, o.Mapped)
}
