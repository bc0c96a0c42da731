package scenario

import (
	"github.com/faas-infer/faas-infer/policy/otp"
	"github.com/faas-infer/faas-infer/sim/profile"
	"github.com/faas-infer/faas-infer/sim/strict"
)

// lambdaProfile is the name of the profile that BATCH published of AWS Lambda.
const lambdaProfile = "lambda"

// onLambda reports whether a function's profile is Lambda's, and takes its times and
// prices from there.
func (r *reader) onLambda(o *strict.Object, f *Function) bool {
	if o.String("profile") != lambdaProfile {
		return false
	}
	spread := o.Number("spread", 0, 2, 0)
	t, err := profile.FromLambda(f.Model)
	if err != nil {
		o.Fail("model", "%v", err)
		return true
	}
	t.SetSpread(spread)
	f.Times, f.Price = t, otp.DefaultLambda()
	return true
}
