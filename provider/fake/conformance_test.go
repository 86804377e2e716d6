package fake_test

import (
	"testing"

	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/fake"
)

func testClass(name string) provider.Class {
	return provider.Class{Namespace: "shop", Name: name, Secret: provider.Secret{"token": []byte("fake-token-0123")}}
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{UsesSynctestBubble: true, NewCloud: func(*testing.T) conformance.Cloud {
		p := fake.New()
		return conformance.Cloud{
			Provider:             p,
			Class:                testClass("plain"),
			NewVolume:            func(handle string) provider.Volume { return provider.Volume{CSIDriver: fake.CSIDriver, Handle: handle} },
			FailNextCall:         func(method provider.Method, err *provider.Error) { p.FailCalls(method, 1, err) },
			BlockCalls:           func(method provider.Method) { p.BlockCalls(method) },
			CreateInstanceByHand: func(machine provider.Machine) { p.CreateInstanceByHand(testClass("plain"), machine) },
		}
	}})
}

func TestConformanceWithInitializeStep(t *testing.T) {
	conformance.Run(t, conformance.Harness{UsesSynctestBubble: true, NewCloud: func(*testing.T) conformance.Cloud {
		initializing := testClass("initializing")
		return conformance.Cloud{
			// The class determines whether instances have the initialize step.
			Provider:                fake.New(fake.WithInitializeStep("shop/initializing")),
			Class:                   testClass("plain"),
			ClassWithInitializeStep: &initializing,
		}
	}})
}
