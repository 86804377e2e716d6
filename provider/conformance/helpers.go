package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"millwright/provider"
)

func (s *conformance) setUp() {
	s.Cloud = s.harness.New(s.T())
	s.machines = 0
	s.Class = withCanaries(s.Class)
	for _, class := range []**provider.Class{&s.Initializing, &s.Elsewhere} {
		if *class != nil {
			*class = new(withCanaries(**class))
		}
	}
	traits, err := s.Provider.Traits(s.T().Context(), s.Class)
	s.Require().NoError(err)
	s.named, s.unique = traits.Named, traits.Idempotency == provider.ByName
	if s.Codes == nil {
		s.Codes = provider.Codes()
	}
}

// uid is the UID that an instance of the machine carries; empty if instances carry names only.
func (s *conformance) uid(m provider.Machine) string {
	if s.named {
		return ""
	}
	return m.UID
}

// elsewhere returns class and machine for another cluster.
func (s *conformance) elsewhere(m provider.Machine) (provider.Class, provider.Machine) {
	m.Cluster = "another"
	if s.Elsewhere != nil {
		return *s.Elsewhere, m
	}
	return s.Class, m
}

func withCanaries(class provider.Class) provider.Class {
	secret := maps.Clone(class.Secret)
	if secret == nil {
		secret = provider.Secret{}
	}
	for key, value := range canaries() {
		secret[key] = []byte(value)
	}
	class.Secret = secret
	return class
}

// machine returns a machine whose creation was never tried.
func (s *conformance) machine() provider.Machine {
	s.machines++
	return provider.Machine{
		Cluster: cluster, Namespace: s.Class.Namespace, NeverTried: true,
		Name: fmt.Sprintf("machine-%d", s.machines), UID: fmt.Sprintf("4c2b6a1e-0000-4000-8000-%012d", s.machines),
	}
}

// tried returns the machine as a caller passes it that may have called CreateInstance before.
func tried(m provider.Machine) provider.Machine {
	m.NeverTried = false
	return m
}

// recorded returns the machine as a caller passes it that has recorded its instance.
func recorded(m provider.Machine, i provider.Instance) provider.Machine {
	m.ProviderID, m.LastKnownState, m.NeverTried = i.ProviderID, i.LastKnownState, false
	return m
}

// create creates an instance, which must succeed, and waits until every read shows it.
func (s *conformance) create(class provider.Class, m provider.Machine) provider.Instance {
	s.T().Helper()
	defer s.settle()
	return s.createNow(class, m)
}

// createNow creates an instance, which must succeed.
func (s *conformance) createNow(class provider.Class, m provider.Machine) provider.Instance {
	s.T().Helper()
	instance, err := s.Provider.CreateInstance(s.T().Context(), class, m)
	s.Require().NoError(err)
	s.keepsSecrets(nil, instance)
	return instance
}

// settle waits for the cloud's window: then every read shows all earlier changes.
func (s *conformance) settle() {
	s.T().Helper()
	traits, err := s.Provider.Traits(s.T().Context(), s.Class)
	s.Require().NoError(err)
	time.Sleep(traits.Window)
}

// plant makes an instance of Class for the machine, and waits until every read shows it.
func (s *conformance) plant(m provider.Machine) {
	s.T().Helper()
	s.need(s.CreateByHand != nil, "plant instances")
	s.CreateByHand(m)
	s.settle()
}

// list waits until every read shows all earlier changes, and returns the instances of Class. It must succeed.
func (s *conformance) list() []provider.Instance {
	s.T().Helper()
	s.settle()
	instances, err := s.Provider.ListInstances(s.T().Context(), s.Class, cluster)
	s.Require().NoError(err)
	s.keepsSecrets(nil, instances)
	return instances
}

// fails requires an error of type *provider.Error that has the code and a message and contains no secrets.
func (s *conformance) fails(err error, code provider.Code) {
	s.T().Helper()
	_ = s.failure(err, code)
}

// failure is fails for a test that also checks the error itself.
func (s *conformance) failure(err error, code provider.Code) *provider.Error {
	s.T().Helper()
	s.Require().Error(err)
	typed, ok := errors.AsType[*provider.Error](err)
	s.Require().True(ok, "%T is not a *provider.Error", err)
	s.Equal(code, typed.Code, "the error: %v", err)
	s.NotEmpty(typed.Message)
	s.NotContains(typed.Message, "\n", "a message is one sentence")
	s.keepsSecrets(err, nil)
	return typed
}

// keepsSecrets looks for the values of the Secret in the error and the result.
func (s *conformance) keepsSecrets(err error, result any) {
	s.T().Helper()
	var said strings.Builder
	for e := err; e != nil; e = errors.Unwrap(e) {
		fmt.Fprintf(&said, "%v\n%+v\n%#v\n", e, e, e)
		encoded, _ := json.Marshal(e) // an error that cannot be encoded cannot leak that way
		said.Write(encoded)
	}
	encoded, marshalErr := json.Marshal(result)
	s.Require().NoError(marshalErr)
	fmt.Fprintf(&said, "%s\n%+v", encoded, result)
	s.Equal(s.Class.Secret.Redact(said.String()), said.String(), "no value of the secret comes out in any form")
	for key, value := range s.Class.Secret {
		if form := strings.TrimSpace(string(value)); form != "" {
			s.NotContains(said.String(), form, "the value of secret key %s came out", key)
		}
	}
}

// gone waits until the cloud has no instance of the machine.
func (s *conformance) gone(m provider.Machine) {
	s.T().Helper()
	s.settle()
	m.NeverTried = true // InstanceStatus is called repeatedly, so it need not wait for the window
	s.Eventually(func() bool {
		_, err := s.Provider.InstanceStatus(s.T().Context(), s.Class, m)
		return provider.CodeOf(err) == provider.NotFound
	}, patience, 5*time.Millisecond)
}

// tagged skips a test about UIDs if instances of the cloud carry none. Instead names the test for such clouds.
func (s *conformance) tagged(instead string) {
	s.T().Helper()
	if s.named {
		s.T().Skip("instances of this cloud carry no UID: " + instead)
	}
}

// answers reports whether the provider takes a code for an answer; see Cloud.Answers.
func (s *conformance) answers(method provider.Method, code provider.Code) bool {
	return s.Answers != nil && s.Answers(method, code)
}

// crowded plants two instances with the machine's name.
func (s *conformance) crowded(m provider.Machine) {
	s.T().Helper()
	s.several()
	s.plant(m)
	s.plant(m)
}

// several skips a test that needs several instances with the same name if names are unique in the cloud.
func (s *conformance) several() {
	s.T().Helper()
	s.need(!s.NamesUnique, "make two instances of one name: names are unique")
}

// need skips the test if the harness does not support what it needs.
func (s *conformance) need(supported bool, what string) {
	s.T().Helper()
	if !supported {
		s.T().Skipf("the harness cannot %s", what)
	}
}

// invoke calls a method for a machine and returns only its error.
func (s *conformance) invoke(ctx context.Context, method provider.Method, m provider.Machine) error {
	return s.invokeFor(ctx, s.Class, method, m)
}

// invokeFor is invoke with another class.
func (s *conformance) invokeFor(
	ctx context.Context,
	class provider.Class,
	method provider.Method,
	m provider.Machine,
) error {
	var err error
	switch method {
	case provider.MethodCreateInstance:
		_, err = s.Provider.CreateInstance(ctx, class, m)
	case provider.MethodInitializeInstance:
		_, err = s.Provider.InitializeInstance(ctx, class, m)
	case provider.MethodDeleteInstance:
		err = s.Provider.DeleteInstance(ctx, class, m)
	case provider.MethodInstanceStatus:
		_, err = s.Provider.InstanceStatus(ctx, class, m)
	case provider.MethodListInstances:
		_, err = s.Provider.ListInstances(ctx, class, cluster)
	case provider.MethodVolumeIDs:
		_, err = s.Provider.VolumeIDs(ctx, nil)
	}
	return err
}

// sameNode requires that both instances have the same node name, unless the first one has none yet.
func (s *conformance) sameNode(made, seen provider.Instance) {
	s.T().Helper()
	if made.NodeName != "" {
		s.Equal(made.NodeName, seen.NodeName)
	}
}

// remoteMethods are the methods that send requests to the cloud for a machine with an instance. InitializeInstance is
// among them only if the cloud has an initialize step.
func (s *conformance) remoteMethods(m provider.Machine) []provider.Method {
	methods := []provider.Method{
		provider.MethodCreateInstance,
		provider.MethodDeleteInstance,
		provider.MethodInstanceStatus,
		provider.MethodListInstances,
	}
	_, err := s.Provider.InitializeInstance(s.T().Context(), s.Class, m)
	if provider.CodeOf(err) == provider.Unimplemented {
		return methods
	}
	s.Require().NoError(err)
	return append(methods, provider.MethodInitializeInstance)
}
