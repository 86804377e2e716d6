package virtual_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/driver"
	"millwright/provider/virtual"
)

func operationOfMethod(method provider.Method) admin.Operation {
	return map[provider.Method]admin.Operation{
		provider.MethodCreateInstance:     admin.OperationCreate,
		provider.MethodInitializeInstance: admin.OperationInitialize,
		provider.MethodDeleteInstance:     admin.OperationDelete,
		provider.MethodInstanceStatus:     admin.OperationStatus,
		provider.MethodListInstances:      admin.OperationList,
	}[method]
}

func TestConformance(t *testing.T) {
	const asItComes = "as it comes"
	for name, behave := range map[string]func(*admin.Behaviour){
		asItComes:               func(*admin.Behaviour) {},
		"without client tokens": func(b *admin.Behaviour) { b.HonorClientTokens = false },
		"stale reads, without client tokens": func(b *admin.Behaviour) {
			b.HonorClientTokens = false
			b.ReadStaleness = virtual.Duration(20 * time.Millisecond)
			b.AcceptLatency = virtual.Duration(10 * time.Millisecond)
		},
		"names of its own for nodes, initialised later": func(b *admin.Behaviour) {
			b.ChooseNodeNames = true
			b.BootLatency = virtual.Duration(20 * time.Millisecond)
			b.NodeInitializationDelay = virtual.Duration(time.Second)
		},
		"pages of two":                        func(b *admin.Behaviour) { b.PageSize = 2 },
		"instances that are gone linger":      func(b *admin.Behaviour) { b.LingerTime = virtual.Duration(time.Hour) },
		"refusals that quote the credentials": func(b *admin.Behaviour) { b.QuoteCredentials = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overHTTP := name == asItComes // the other rows set durations, which need a bubble
			conformance.Run(
				t,
				conformance.Harness{UsesSynctestBubble: !overHTTP, NewCloud: func(t *testing.T) conformance.Cloud {
					c := startCloud(t)
					c.changeBehaviour(t, behave)
					if overHTTP {
						return newConformanceCloud(t, c, virtual.New(c.startServer(t), driver.WithRequestLifetime(time.Second)))
					}
					return newConformanceCloud(t, c, newWorkerProvider(c))
				}},
			)
		})
	}
}

func newConformanceCloud(t *testing.T, c testCloud, p provider.Provider) conformance.Cloud {
	c.changeBehaviour(t, func(b *admin.Behaviour) { b.AcceptedTokens = []string{canarySecret} })
	denied := testClass("pool", nil)
	denied.Secret["token"] = []byte("canary-of-somebody-else")
	initializing := testClass("initializing", map[string]any{"initialize": true})
	return conformance.Cloud{
		Provider:                p,
		Class:                   testClass("pool", nil),
		ClassWithInitializeStep: &initializing,
		DeniedClass:             &denied,
		NewVolume: func(handle string) provider.Volume {
			return provider.Volume{CSIDriver: virtual.CSIDriver, Handle: handle}
		},
		FailNextCall: func(method provider.Method, err *provider.Error) {
			require.NoError(t, c.AddFault(admin.Fault{
				Operation: operationOfMethod(method), Code: err.Code.String(), Message: err.Message,
				RetryAfter: virtual.Duration(err.RetryAfter), MaxFailures: 1,
			}))
		},
		BlockCalls: func(method provider.Method) {
			c.changeBehaviour(t, func(b *admin.Behaviour) {
				// keep the other hangs: if one were removed, its hanging calls would continue and take effect
				hangs := maps.Clone(b.HangPoints)
				if hangs == nil {
					hangs = map[admin.Operation]admin.HangPoint{}
				}
				hangs[operationOfMethod(method)] = admin.HangBeforeEffect
				b.HangPoints = hangs
			})
		},
		CreateInstanceByHand: func(m provider.Machine) {
			_, err := c.CreateByHand(virtual.CreateRequest{
				Name: m.Name, Tags: tagsOfMachine(m), Spec: virtual.Spec{Region: "eu", Zone: "eu-1", InstanceType: "small"},
			})
			require.NoError(t, err)
		},
	}
}
