package cloud

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/virtual"
)

func validateCreate(request virtual.CreateRequest) error {
	for _, required := range []struct{ name, value string }{
		{"name", request.Name},
		{"tags.cluster", request.Tags.Cluster},
		{"spec.region", request.Spec.Region},
		{"spec.zone", request.Spec.Zone},
		{"spec.instanceType", request.Spec.InstanceType},
	} {
		if required.value == "" {
			return provider.Errorf(provider.InvalidArgument, "%s: is required", required.name)
		}
	}
	for name, quantity := range request.Spec.Capacity {
		if _, err := resource.ParseQuantity(string(quantity)); err != nil {
			return provider.Errorf(
				provider.InvalidArgument,
				"capacity.%s: %q is not a quantity such as 500m or 16Gi",
				name,
				quantity,
			)
		}
	}
	return nil
}

func validateBehaviour(b admin.Behaviour) error {
	for op, limit := range b.RateLimits {
		if err := validateOperation(op); err != nil {
			return err
		}
		if limit.TokensPerSecond <= 0 || limit.Burst < 1 {
			return provider.Errorf(provider.InvalidArgument, "rateLimits.%s: perSecond must be above 0 and burst at least 1", op)
		}
		if limit.Code != "" && !isProviderCodeName(limit.Code) {
			return provider.Errorf(provider.InvalidArgument, "rateLimits.%s.code: %q is no code", op, limit.Code)
		}
	}
	for op, point := range b.HangPoints {
		if err := validateOperation(op); err != nil {
			return err
		}
		if point != admin.HangBeforeEffect && point != admin.HangAfterEffect {
			return provider.Errorf(
				provider.InvalidArgument,
				"hangs.%s: %q is neither %q nor %q",
				op,
				point,
				admin.HangBeforeEffect,
				admin.HangAfterEffect,
			)
		}
	}
	return nil
}

func validateFault(f admin.Fault) error {
	if err := validateOperation(f.Operation); err != nil {
		return err
	}
	switch {
	case !isProviderCodeName(f.Code):
		return provider.Errorf(provider.InvalidArgument, "code: %q is no code", f.Code)
	case f.MaxFailures < 0 || f.EveryNthCall < 0:
		return provider.Errorf(provider.InvalidArgument, "count and every must not be negative")
	case f.Probability < 0 || f.Probability > 1:
		return provider.Errorf(provider.InvalidArgument, "probability: %v is not between 0 and 1", f.Probability)
	}
	return nil
}

func validateOperation(op admin.Operation) error {
	if !slices.Contains(admin.Operations(), op) {
		return provider.Errorf(provider.InvalidArgument, "operation: %q is none of %v", op, admin.Operations())
	}
	return nil
}

// isProviderCodeName reports whether a text is the name of a code. ParseCode returns Unknown for the name of the code
// Unknown, and also for every text that is no code's name.
func isProviderCodeName(name string) bool {
	return provider.ParseCode(name) != provider.Unknown || name == provider.Unknown.String()
}
