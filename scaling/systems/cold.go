package systems

import "github.com/faas-infer/faas-infer/coldstart"

// WithCold returns the system with another cold-start policy, by its name in package
// coldstart. Use it to compare cold-start policies alone. An error lists the known ones.
func (s System) WithCold(name string) (System, error) {
	if _, err := coldstart.New(name, coldstart.Options{}); err != nil {
		return System{}, err
	}
	s.cold = name
	return s, nil
}
