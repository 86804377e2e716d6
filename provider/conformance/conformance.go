// Package conformance answers whether a Provider keeps the promises of package provider. The test of each provider calls
// Run with a Harness; a new provider is done when that passes. It judges behaviour through the interface alone and knows
// no cloud.
package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/suite"

	"millwright/provider"
)

// Harness gives the suite a provider to judge.
type Harness struct {
	// New returns a provider in front of an empty cloud. It is called once for each test, which registers its own clean-up.
	New func(t *testing.T) Cloud
}

// Cloud is a provider, and what its test can do to the cloud behind it. What is nil is not supported: the tests that need
// it are skipped, and say so.
type Cloud struct {
	Provider provider.Provider

	// Class is one that instances can be made from, with a Secret that works.
	Class provider.Class

	// Initializing is a class whose instances wait for InitializeInstance. Instances of Class never do.
	Initializing *provider.Class

	// OwnVolume returns a volume of this cloud with that handle.
	OwnVolume func(handle string) provider.Volume

	// Fail makes the next call of a method end with that code, message and RetryAfter. VolumeIDs is never asked for.
	Fail func(method provider.Method, err *provider.Error)

	// Hang makes calls of a method hang until the test ends. VolumeIDs is never asked for.
	Hang func(method provider.Method)

	// Plant makes an instance of Class for the machine, whether or not there is one.
	Plant func(machine provider.Machine)
}

// The numbers of the suite.
const (
	// prompt is how soon after the end of its context a call must return: generous, since test machines stall.
	prompt = 2 * time.Second

	// patience bounds the wait for what a cloud does in its own time, such as ending an instance.
	patience = 10 * time.Second

	cluster = "conformance"
)

// canaries are the values in the Secret that must never come out again. They look like what Secrets hold.
func canaries() map[string]string {
	return map[string]string{
		"conformancePassword": "canary-7f3a9c51d2e84b60",
		"conformanceKey":      "-----BEGIN CANARY-----\nc0ffee5eed\n-----END CANARY-----\n",
	}
}

// Run judges the provider.
func Run(t *testing.T, h Harness) {
	t.Helper()
	suite.Run(t, &conformance{harness: h})
}

// conformance is the suite; each test has a cloud of its own.
type conformance struct {
	suite.Suite
	Cloud
	harness  Harness
	machines int // made by machine, for names that differ
}
