// Package main is an example of a worker that serves a driver of MCM. A real one has another import, and the driver of
// its own module in the call: for AWS, aws.NewAWSDriver(&spi.PluginSPIImpl{}).
package main

import (
	"millwright/provider/mcmdriver"
	"millwright/provider/mcmdriver/internal/ec2test"
)

func main() {
	mcmdriver.Run(&ec2test.Driver{Cloud: &ec2test.Cloud{}}, "AWS")
}
