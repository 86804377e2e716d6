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

// Quick makes the waits for earlier creations short.
func Quick(window time.Duration) []mcmdriver.Option {
	return []mcmdriver.Option{
		mcmdriver.WithWindow(window),
		mcmdriver.WithAdapter(driver.WithRequestLife(20*time.Millisecond), driver.WithSearchInterval(5*time.Millisecond)),
	}
}

var methods = map[provider.Method]string{
	provider.MethodCreateInstance:     "CreateMachine",
	provider.MethodInitializeInstance: "InitializeMachine",
	provider.MethodDeleteInstance:     "DeleteMachine",
	provider.MethodInstanceStatus:     "GetMachineStatus",
	provider.MethodListInstances:      "ListMachines",
}

// Cloud returns the fields of the harness that are the same for every driver of MCM. The caller sets the others.
func Cloud(t *testing.T, d *Driver, class provider.Class, csiDriver string) conformance.Cloud {
	return conformance.Cloud{
		Provider: mcmdriver.New(d, Quick(20*time.Millisecond)...),
		Class:    class,
		OwnVolume: func(handle string) provider.Volume {
			return provider.Volume{CSIDriver: csiDriver, Handle: handle}
		},
		Fail: func(m provider.Method, err *provider.Error) {
			d.Fail(methods[m], status.Error(codes.Code(err.Code), err.Message))
		},
		Answers: func(m provider.Method, code provider.Code) bool {
			return m == provider.MethodInstanceStatus &&
				(code == provider.NotFound || code == provider.Unimplemented || code == provider.OutOfRange)
		},
		Timeless:  true,
		CreatesOn: true,
		Hang: func(m provider.Method) {
			d.Hang(methods[m], t.Context().Done())
		},
	}
}
