package gpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

const gib = 1 << 30

func two() Inventory {
	return Inventory{
		Devices: []Device{
			{Index: 0, UUID: "GPU-a", Model: "NVIDIA A100-SXM4-40GB", Memory: 40 * gib, SMs: 108, Capability: "8.0"},
			{Index: 1, UUID: "GPU-b", Model: "NVIDIA A100-SXM4-40GB", Memory: 40 * gib, SMs: 108, Capability: "8.0"},
		},
		Sharing: MPS, PipeDirectory: "/run/faas-infer/mps/pipe",
	}
}

// Parse reads what String wrote, and refuses an invalid inventory with the field's name.
func TestParse(t *testing.T) {
	again, err := Parse(two().String())
	if err != nil || again.String() != two().String() {
		t.Fatalf("%v, %v", again, err)
	}
	for text, says := range map[string]string{
		"":                   "not an inventory",
		"[]":                 "not an inventory",
		`{}`:                 "sharing",
		`{"sharing":"half"}`: `"half"`,
		`{"sharing":"mps","pipeDirectory":"run"}`:                                                 "absolute",
		`{"sharing":"mps","devices":[{"uuid":"a","pipeDirectory":"/a"},{"uuid":"b"}]}`:            "devices[1].pipeDirectory",
		`{"sharing":"none","devices":[{"uuid":"a","pipeDirectory":"a"}]}`:                         "devices[0].pipeDirectory",
		`{"sharing":"none","devices":[{"uuid":""}]}`:                                              "devices[0].uuid",
		`{"sharing":"none","devices":[{"uuid":"a,b"}]}`:                                           "devices[0].uuid",
		`{"sharing":"none","devices":[{"uuid":"a"},{"uuid":"a"}]}`:                                "twice",
		`{"sharing":"none","devices":[{"uuid":"a","memory":-1}]}`:                                 "devices[0].memory",
		`{"sharing":"none","devices":[{"uuid":"a","sms":-1}]}`:                                    "devices[0].sms",
		`{"sharing":"none","sharedMemory":"x"}`:                                                   "sharedMemory",
		`{"sharing":"none","devices":[` + strings.Repeat(`{"uuid":"x"},`, 256) + `{"uuid":"x"}]}`: "257 devices",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, want it to say %q", text, err, says)
		}
	}
}

// Each GPU may have a daemon of its own. One that is given out whole needs none.
func TestOwnDaemons(t *testing.T) {
	i, err := Parse(`{"sharing":"mps","devices":[{"uuid":"a","pipeDirectory":"/mps/a"},{"uuid":"MIG-b","unshareable":"MIG","whole":true}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if s := i.On("a", 30, 0); s.PipeDirectory != "/mps/a" || s.Mounts()[0].Host != "/mps/a" {
		t.Errorf("%+v", s)
	}
	if s := i.On("MIG-b", 40, 0); len(s.Mounts()) > 0 || s.Env()["CUDA_MPS_PIPE_DIRECTORY"] != "" {
		t.Errorf("a whole one has a daemon: %v", s.Mounts())
	}
	i.PipeDirectory = "/mps"
	if s := i.On("MIG-b", 40, 0); s.PipeDirectory != "" {
		t.Errorf("a whole one beside a common daemon: %+v", s)
	}
}

// Only shareable GPUs count, and none without MPS.
func TestTotal(t *testing.T) {
	i := two()
	if percent, memory := i.Total(); percent != 200 || memory != 80*gib {
		t.Errorf("%d %%, %d", percent, memory)
	}
	i.Devices[1].Unshareable = "MIG is enabled"
	if percent, memory := i.Total(); percent != 100 || memory != 40*gib {
		t.Errorf("with MIG on one: %d %%, %d", percent, memory)
	}
	i.Sharing = Whole
	if percent, memory := i.Total(); percent != 0 || memory != 0 {
		t.Errorf("given out whole: %d %%, %d", percent, memory)
	}
}

func TestPlace(t *testing.T) {
	for _, test := range []struct {
		name    string
		held    []Held
		percent int
		memory  int64
		want    string
	}{
		{"the first of two that are empty", nil, 30, gib, "GPU-a"},
		{"the fuller one, so that a whole one stays", []Held{{"GPU-b", 30, gib}}, 30, gib, "GPU-b"},
		{"the one that has it left", []Held{{"GPU-a", 80, gib}}, 30, gib, "GPU-b"},
		{"memory counts, too", []Held{{"GPU-a", 10, 39 * gib}}, 10, 2 * gib, "GPU-b"},
		{"as much left: the one with less memory", []Held{{"GPU-a", 10, gib}, {"GPU-b", 10, 2 * gib}}, 10, gib, "GPU-b"},
		{"a whole one", []Held{{"GPU-a", 1, 0}}, 100, 40 * gib, "GPU-b"},
		{"what is held of others does not count", []Held{{"GPU-c", 100, 40 * gib}}, 100, 0, "GPU-a"},
		{"60 % of two that have 40 % each", []Held{{"GPU-a", 60, 0}, {"GPU-b", 60, 0}}, 60, 0, ""},
		{"no memory", []Held{{"GPU-a", 60, 40 * gib}, {"GPU-b", 60, 39 * gib}}, 10, 2 * gib, ""},
		{"as many shares as MPS serves", append(slices.Repeat([]Held{{"GPU-a", 1, 0}}, cluster.MaxShares), Held{"GPU-b", 40, 0}), 10, 0, "GPU-b"},
		{"over-full", []Held{{"GPU-a", 160, 0}, {"GPU-b", 160, 0}}, 1, 0, ""},
	} {
		share, err := two().Place(test.held, "", test.percent, test.memory)
		switch {
		case test.want == "" && !errors.Is(err, ErrNone):
			t.Errorf("%s: %v, %v", test.name, share, err)
		case test.want != "" && (err != nil || share.Device != test.want || share.Percent != test.percent || share.Memory != test.memory):
			t.Errorf("%s: %v, %v", test.name, share, err)
		}
	}
	for _, percent := range []int{-1, 0, 101} {
		if _, err := two().Place(nil, "", percent, 0); err == nil || errors.Is(err, ErrNone) {
			t.Errorf("%d %%: %v", percent, err)
		}
	}
	none := Inventory{Sharing: Whole, Reason: "the plugin has them", Devices: two().Devices}
	if _, err := none.Place(nil, "", 10, 0); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "the plugin has them") {
		t.Errorf("%v", err)
	}
}

// A scheduler's wish is followed as long as there is room on that GPU.
func TestWish(t *testing.T) {
	for _, test := range []struct {
		held []Held
		wish string
		want string
	}{
		{nil, "GPU-b", "GPU-b"}, {nil, "GPU-c", "GPU-a"}, {[]Held{{"GPU-b", 80, 0}}, "GPU-b", "GPU-a"},
	} {
		if share, err := two().Place(test.held, test.wish, 30, gib); err != nil || share.Device != test.want {
			t.Errorf("%q beside %v: %v, %v", test.wish, test.held, share, err)
		}
	}
}

// Rooms counts what is held of each GPU, leaves out those that are not given out, and knows MIG
// instances and lost GPUs.
func TestRooms(t *testing.T) {
	i := two()
	i.Devices = append(i.Devices,
		Device{Index: 2, UUID: "GPU-c", Memory: 40 * gib, Unshareable: "it is not among the devices that are named for sharing"},
		Device{Index: 3, UUID: "MIG-d", Memory: 20 * gib, Percent: 42, Unshareable: "MIG", Whole: true},
		Device{Index: 4, UUID: "GPU-e", Memory: 40 * gib, Lost: "XID 79"})
	rooms := i.Rooms([]Held{{"GPU-a", 30, gib}, {"GPU-a", 0, 2 * gib}, {"MIG-d", 40, gib}})
	want := []cluster.DeviceRoom{
		{UUID: "GPU-a", Total: cluster.Resources{GPU: 100, GPUMemory: 40 * gib}, Free: cluster.Resources{GPU: 70, GPUMemory: 37 * gib}, Instances: 2},
		{UUID: "GPU-b", Total: cluster.Resources{GPU: 100, GPUMemory: 40 * gib}, Free: cluster.Resources{GPU: 100, GPUMemory: 40 * gib}},
		{UUID: "MIG-d", Total: cluster.Resources{GPU: 42, GPUMemory: 20 * gib}, Free: cluster.Resources{GPU: 2, GPUMemory: 19 * gib}, Instances: 1, Whole: true},
		{UUID: "GPU-e", Total: cluster.Resources{GPU: 100, GPUMemory: 40 * gib}, Free: cluster.Resources{GPU: 100, GPUMemory: 40 * gib}, Lost: "XID 79"},
	}
	for at := range want {
		want[at].Kind = Kind(i.Usable()[at].Model, i.Driver)
	}
	if !slices.Equal(rooms, want) {
		t.Errorf("%+v,\nwant %+v", rooms, want)
	}
	if percent, memory := i.Total(); percent != 242 || memory != 100*gib {
		t.Errorf("in all %d %%, %d bytes", percent, memory)
	}
}

// No sequence of shares gives out a GPU twice.
func FuzzPlace(f *testing.F) {
	f.Add([]byte{30, 70, 30, 1, 99, 100, 0, 50})
	f.Fuzz(func(t *testing.T, steps []byte) {
		i := two()
		var held []Held
		for n, s := range steps {
			if s > 200 && len(held) > 0 {
				held = append(held[:n%len(held)], held[n%len(held)+1:]...)
				continue
			}
			share, err := i.Place(held, []string{"", "GPU-a", "GPU-b"}[n%3], int(s), int64(s)<<28)
			if err == nil {
				held = append(held, Held{share.Device, share.Percent, share.Memory})
			}
			for _, r := range i.Rooms(held) {
				if r.Free.GPU < 0 || r.Free.GPUMemory < 0 {
					t.Fatalf("%+v", r)
				}
				if err != nil && int(s) >= 1 && int(s) <= min(100, r.Free.GPU) && int64(s)<<28 <= r.Free.GPUMemory {
					t.Fatalf("%d %% of %+v: %v", s, r, err)
				}
			}
		}
	})
}

func TestEnv(t *testing.T) {
	share, err := two().Place(nil, "", 30, 4*gib+1)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"CUDA_VISIBLE_DEVICES": "GPU-a", "NVIDIA_VISIBLE_DEVICES": "GPU-a", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30", "CUDA_MPS_PIPE_DIRECTORY": "/run/faas-infer/mps/pipe",
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4097M",
	}
	if got := share.Env(); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := ReadShare(func(name string) string { return share.Env()[name] }); got != (Share{Device: "GPU-a", Percent: 30, Memory: 4097 << 20}) {
		t.Errorf("read again: %+v", got)
	}
	for name := range share.Env() {
		if IsShare(name) != strings.HasPrefix(name, "CUDA_") && name != "CUDA_MPS_PIPE_DIRECTORY" {
			t.Error(name)
		}
	}
	if got := ReadShare(func(string) string { return "7x" }); got != (Share{}) {
		t.Errorf("nonsense is the share %+v", got)
	}
	share.Memory = 0
	if _, limited := share.Env()["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]; limited {
		t.Error("a limit where none was asked for")
	}
	if m := share.Mounts(); m[0].Host != "/run/faas-infer/mps/pipe" || m[0].Path != m[0].Host || m[1].Host != "/dev/shm" || m[1].Path != "/dev/shm" {
		t.Errorf("%v", m)
	}
}

func TestOffer(t *testing.T) {
	for _, test := range []struct {
		present, ours, mig, whole int
		claimed                   bool
		want                      Sharing
		says                      string
		// The last of ours: so many are gone, so many others are lost.
		gone, lost int
		// Of the others, so many are gone.
		theirs int
	}{
		{present: 0, want: None, says: "no GPU"},
		{present: 8, ours: 8, want: MPS},
		{present: 8, ours: 8, whole: 8, want: Whole, says: "given out twice"},
		{present: 8, ours: 2, whole: 7, want: Whole, says: "--devices"},
		{present: 8, ours: 2, whole: 6, want: MPS},
		{present: 8, want: None, says: "none"},
		{present: 8, whole: 8, want: None, says: "none"},
		// The plugin gave the GPUs to the agent, so it gives them to nobody else.
		{present: 8, ours: 2, whole: 8, claimed: true, want: MPS},
		{present: 8, ours: 8, whole: 8, claimed: true, want: MPS},
		{present: 8, ours: 2, whole: 16, claimed: true, want: Whole, says: "several times"},
		{present: 8, whole: 8, claimed: true, want: None, says: "none"},
		// MIG instances are given out in place of their GPU.
		{present: 1, mig: 3, want: MPS},
		{present: 1, mig: 3, whole: 3, want: Whole, says: "given out twice"},
		{present: 1, mig: 3, whole: 1, want: Whole, says: "given out twice"},
		{present: 1, mig: 3, whole: 3, claimed: true, want: MPS},
		{present: 1, mig: 3, whole: 6, claimed: true, want: Whole, says: "several times"},
		// A plugin that hands out each several times is noticed whatever is gone; one that still counts those is
		// not taken for one, unless it could be.
		{present: 4, ours: 4, gone: 1, whole: 3, claimed: true, want: MPS},
		{present: 4, ours: 4, gone: 1, whole: 4, claimed: true, want: MPS},
		{present: 4, ours: 4, gone: 1, whole: 6, claimed: true, want: Whole, says: "the agent sees 3 GPUs"},
		{present: 5, ours: 5, gone: 3, whole: 4, claimed: true, want: Whole, says: "3 more are lost"},
		{present: 5, ours: 5, gone: 3, whole: 2, claimed: true, want: MPS},
		{present: 2, ours: 2, lost: 1, whole: 2, claimed: true, want: MPS},
		{present: 2, ours: 2, gone: 2, whole: 2, claimed: true, want: MPS},
		{present: 8, ours: 4, gone: 1, whole: 4, want: MPS},
		{present: 8, ours: 4, gone: 1, whole: 5, want: Whole, says: "5 nvidia.com/gpu of the node's 7, and 3 more"},
		{present: 8, ours: 4, lost: 1, whole: 4, want: MPS},
		// The plugin may still count its own that is gone, or not.
		{present: 8, ours: 4, theirs: 1, whole: 4, want: MPS},
		{present: 8, ours: 4, theirs: 1, whole: 3, want: MPS},
		{present: 8, ours: 4, gone: 1, theirs: 1, whole: 4, want: MPS},
		{present: 8, ours: 4, theirs: 1, whole: 5, want: Whole, says: "1 more are lost"},
		{present: 8, ours: 8, gone: 1, whole: 7, want: Whole, says: "given out twice"},
	} {
		i := Inventory{Sharing: MPS, Claimed: test.claimed}
		for n := range test.present {
			d := Device{UUID: fmt.Sprint("GPU-", n)}
			if n >= test.ours {
				d.Unshareable, d.Divided, d.Gone = "no", test.mig > 0, n >= test.present-test.theirs
			} else if n >= test.ours-test.gone-test.lost {
				d.Lost, d.Gone = "it fell off", n >= test.ours-test.gone
			}
			i.Devices = append(i.Devices, d)
		}
		for n := range test.mig {
			i.Devices = append(i.Devices, Device{UUID: fmt.Sprint("MIG-", n), Parent: "GPU-0", Unshareable: "MIG", Whole: true})
		}
		got, why := i.Offer(test.whole)
		if got != test.want || !strings.Contains(why, test.says) || (why == "") != (got == MPS) {
			t.Errorf("%+v: %s, %q", test, got, why)
		}
	}
}

// Given reads the GPUs that the device plugin gave to a container, and refuses what does not name
// each of them once.
func TestGiven(t *testing.T) {
	for value, want := range map[string]string{
		"GPU-a": "GPU-a", "GPU-a,GPU-b": "GPU-a GPU-b", "0, 3": "0 3",
		"": "is empty", "all": `is "all"`, "void": `is "void"`, "none": `is "none"`,
		"/var/run/nvidia-container-devices": "envvar",
		"GPU-a,GPU-a":                       "GPU-a twice", "GPU-a::1": "GPU-a::1", "GPU-a,,GPU-b": "no name",
	} {
		names, err := Given(value)
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || err != nil && (len(names) > 0 || !strings.Contains(got, want) || !strings.Contains(got, "NVIDIA_VISIBLE_DEVICES")) {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}
