package mcmtest

import (
	"testing"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"

	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/driver"
	"millwright/provider/mcmdriver"
)

// OptionsWithShortWaits returns options that shorten the waits for earlier creations.
func OptionsWithShortWaits(window time.Duration) []mcmdriver.Option {
	return []mcmdriver.Option{
		mcmdriver.WithConsistencyWindow(window),
		mcmdriver.WithDriverOptions(
			driver.WithRequestLifetime(20*time.Millisecond),
			driver.WithSearchInterval(5*time.Millisecond),
		),
	}
}

var mcmMethodNames = map[provider.Method]string{
	provider.MethodCreateInstance:     "CreateMachine",
	provider.MethodInitializeInstance: "InitializeMachine",
	provider.MethodDeleteInstance:     "DeleteMachine",
	provider.MethodInstanceStatus:     "GetMachineStatus",
	provider.MethodListInstances:      "ListMachines",
}

// NewConformanceCloud returns a conformance.Cloud with the fields that are common to all drivers of MCM. The caller
// sets the other fields.
func NewConformanceCloud(t *testing.T, d *Driver, class provider.Class, csiDriver string) conformance.Cloud {
	return conformance.Cloud{
		Provider: mcmdriver.New(d, OptionsWithShortWaits(20*time.Millisecond)...),
		Class:    class,
		NewVolume: func(handle string) provider.Volume {
			return provider.Volume{CSIDriver: csiDriver, Handle: handle}
		},
		FailNextCall: func(m provider.Method, err *provider.Error) {
			d.FailNextCall(mcmMethodNames[m], status.Error(codes.Code(err.Code), err.Message))
		},
		IsSuccessCode: func(m provider.Method, code provider.Code) bool {
			return m == provider.MethodInstanceStatus &&
				(code == provider.NotFound || code == provider.Unimplemented || code == provider.OutOfRange)
		},
		LacksRetryDelays:   true,
		CannotCancelCreate: true,
		BlockCalls: func(m provider.Method) {
			d.BlockCalls(mcmMethodNames[m], t.Context().Done())
		},
	}
}
