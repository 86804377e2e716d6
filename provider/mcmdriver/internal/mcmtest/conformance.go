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

// Quick returns options that shorten the waits for earlier creations.
func Quick(window time.Duration) []mcmdriver.Option {
	return []mcmdriver.Option{
		mcmdriver.WithWindow(window),
		mcmdriver.WithAdapter(driver.WithRequestLife(20*time.Millisecond), driver.WithSearchInterval(5*time.Millisecond)),
	}
}

var mcmMethodNames = map[provider.Method]string{
	provider.MethodCreateInstance:     "CreateMachine",
	provider.MethodInitializeInstance: "InitializeMachine",
	provider.MethodDeleteInstance:     "DeleteMachine",
	provider.MethodInstanceStatus:     "GetMachineStatus",
	provider.MethodListInstances:      "ListMachines",
}

// Cloud returns a conformance.Cloud with the fields that are common to all drivers of MCM. The caller sets the other
// fields.
func Cloud(t *testing.T, d *Driver, class provider.Class, csiDriver string) conformance.Cloud {
	return conformance.Cloud{
		Provider: mcmdriver.New(d, Quick(20*time.Millisecond)...),
		Class:    class,
		OwnVolume: func(handle string) provider.Volume {
			return provider.Volume{CSIDriver: csiDriver, Handle: handle}
		},
		Fail: func(m provider.Method, err *provider.Error) {
			d.Fail(mcmMethodNames[m], status.Error(codes.Code(err.Code), err.Message))
		},
		Answers: func(m provider.Method, code provider.Code) bool {
			return m == provider.MethodInstanceStatus &&
				(code == provider.NotFound || code == provider.Unimplemented || code == provider.OutOfRange)
		},
		Timeless:  true,
		CreatesOn: true,
		Hang: func(m provider.Method) {
			d.Hang(mcmMethodNames[m], t.Context().Done())
		},
	}
}
