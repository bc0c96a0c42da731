package shadow

import "testing"

// With shared weights a twin costs no more than a shadow. With weights of their own a pair is cheaper if
// memory has a price.
func TestCheapest(t *testing.T) {
	m := linear([]float64{8, 2}, []float64{10, 2000})
	o := Options{Body: 1000, Shadow: 1000, MaxRows: 8, Memory: Own, Rho: 1}
	for _, test := range []struct {
		memory Accounting
		rho    float64
		take   bool
	}{{Shared, 1, false}, {Own, 1, true}, {Own, 0, false}} {
		o.Memory, o.Rho = test.memory, test.rho
		pair, whole, take, err := Cheapest(m, o, 0)
		if err != nil || take != test.take || take && pair.Cost >= whole.Cost {
			t.Errorf("%+v: %v, %v; a request costs %g of a pair, %g of twins", test, take, err, pair.Cost, whole.Cost)
		}
	}
	one := linear([]float64{8}, []float64{10})
	if _, whole, take, err := Cheapest(one, o, 16); err != nil || take || whole.Best.Rows == 0 {
		t.Errorf("a model of one block: %+v, %v, %v", whole.Best, take, err)
	}
	o.Body = 0
	if _, _, _, err := Cheapest(m, o, 0); err == nil {
		t.Error("no share is taken")
	}
}
