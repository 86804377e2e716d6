package virtual_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/virtual"
)

func operation(method provider.Method) admin.Operation {
	return map[provider.Method]admin.Operation{
		provider.MethodCreateInstance:     admin.Create,
		provider.MethodInitializeInstance: admin.Initialize,
		provider.MethodDeleteInstance:     admin.Delete,
		provider.MethodInstanceStatus:     admin.Status,
		provider.MethodListInstances:      admin.List,
	}[method]
}

func TestConformance(t *testing.T) {
	for name, behave := range map[string]func(*admin.Behaviour){
		"as it comes":           func(*admin.Behaviour) {},
		"without client tokens": func(b *admin.Behaviour) { b.ClientTokens = false },
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, conformance.Harness{New: func(t *testing.T) conformance.Cloud {
				c := startCloud(t)
				c.change(t, behave)
				return suiteCloud(t, c)
			}})
		})
	}
}

func suiteCloud(t *testing.T, c testCloud) conformance.Cloud {
	initializing := class("initializing", map[string]any{"initialize": true})
	return conformance.Cloud{
		Provider:     virtual.New(c.address, virtual.WithRequestLife(100*time.Millisecond), virtual.WithLookInterval(5*time.Millisecond)),
		Class:        class("pool", nil),
		Initializing: &initializing,
		OwnVolume: func(handle string) provider.Volume {
			return provider.Volume{CSIDriver: virtual.CSIDriver, Handle: handle}
		},
		Fail: func(method provider.Method, err *provider.Error) {
			require.NoError(t, c.AddFault(admin.Fault{
				Operation: operation(method), Code: err.Code.String(), Message: err.Message,
				RetryAfter: virtual.Duration(err.RetryAfter), Count: 1,
			}))
		},
		Hang: func(method provider.Method) {
			c.change(t, func(b *admin.Behaviour) {
				b.Hangs = map[admin.Operation]admin.HangPoint{operation(method): admin.BeforeEffect}
			})
		},
		Plant: func(m provider.Machine) {
			_, err := c.Plant(virtual.CreateRequest{
				Name: m.Name, Tags: tags(m), Spec: virtual.Spec{Region: "eu", Zone: "eu-1", InstanceType: "small"},
			})
			require.NoError(t, err)
		},
	}
}
