package scenario

import (
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/lab/lambda"
	"github.com/faas-infer/faas-infer/lab/testbed"
)

// lambdaProfile is the name of BATCH's published profile of AWS Lambda.
const lambdaProfile = "lambda"

// onLambda reports whether a function's profile is Lambda's. If so, it sets the function's
// times and prices.
func (r *reader) onLambda(o *fleet.Object, f *Function) bool {
	if o.String("profile") != lambdaProfile {
		return false
	}
	spread := o.Number("spread", 0, 2, 0)
	t, err := testbed.FromLambda(f.Model)
	if err != nil {
		o.Fail("model", "%v", err)
		return true
	}
	t.SetSpread(spread)
	f.Times, f.Price = t, lambda.DefaultPricing()
	return true
}
