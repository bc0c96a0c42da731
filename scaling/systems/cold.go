package systems

import "github.com/faas-infer/faas-infer/coldstart"

// WithCold returns the system with another cold-start policy, by its name and options in
// package coldstart. Use it to compare cold-start policies alone. A KeepAlive of 0 means that
// of the baselines. An error lists the known policies, or says which option is not allowed.
func (s System) WithCold(name string, o coldstart.Options) (System, error) {
	if o.KeepAlive == 0 {
		o.KeepAlive = baselineKeepAlive
	}
	if _, err := coldstart.New(name, o); err != nil {
		return System{}, err
	}
	s.rules.Cold, s.coldOptions = name, o
	return s, nil
}

// Cold returns a new cold-start policy of the system.
func (s System) Cold() coldstart.Policy {
	o := s.coldOptions
	if o.KeepAlive == 0 {
		o.KeepAlive = baselineKeepAlive
	}
	p, err := coldstart.New(s.rules.Cold, o)
	if err != nil {
		panic(err) // The names are constants, and a test makes them all.
	}
	return p
}
