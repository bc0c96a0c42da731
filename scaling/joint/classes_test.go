package joint

import (
	"reflect"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Places are in one zone if the same demands may be there. Demands with equal lists of places count
// like demands that share one.
func TestZones(t *testing.T) {
	room := placing.New(nodes(4, 4000, 0), options)
	shared := placing.Only(true, true, false, false)
	p := New(Thrift{}, []Demand{demand(1), demand(1), demand(1), demand(1)})
	p.Demands[1].Allowed, p.Demands[2].Allowed, p.Demands[3].Allowed = shared, shared, placing.Only(true, false, true, false)
	of, barred := p.zones(len(room.Places))
	want := [][]bool{nil, {false, false, false, true}, {false, true, true, false}, {false, true, true, true}}
	if !slices.Equal(of, []int{0, 1, 2, 3}) || !reflect.DeepEqual(barred, want) {
		t.Errorf("%v, %v", of, barred)
	}
	p.Demands[3].Allowed = placing.Only(true, true, false, false)
	if of, barred = p.zones(len(room.Places)); !slices.Equal(of, []int{0, 0, 1, 1}) || !reflect.DeepEqual(barred, [][]bool{nil, want[3]}) {
		t.Errorf("%v, %v", of, barred)
	}
	p.Demands = p.Demands[:1]
	if of, barred = p.zones(len(room.Places)); !slices.Equal(of, []int{0, 0, 0, 0}) || !reflect.DeepEqual(barred, [][]bool{nil}) {
		t.Errorf("%v, %v", of, barred)
	}
}
