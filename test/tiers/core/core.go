// Package core lists the integration tests of make test: the way from objects to machines through every room, each kind
// once, each of the most important faults once, admission, rights, an adoption, the check before a migration, and the
// core of Cluster API. All other integration tests run only in make test-all.
package core

// TestNamesByPackage returns the names of the tests by their package below test/integration. No two tests of the list
// have the same name.
func TestNamesByPackage() map[string][]string {
	return map[string][]string{
		"admission": {"TestAdmission"},
		"rights":    {"TestRolesAreAsSmallAsCanBe"},
		"kills":     {"TestAProcessIsKilledInACreationADrainAndARollout", "TestAWorkerIsKilledAfterItsReport"},
		"chain": {
			"TestMCMScenarios",
			"TestCreationIsInterruptedByADeletion",
			"TestMissingClassAndSecretAreShown",
			"TestNodeLossSetsUnknown",
			"TestEverythingIsDeletedAtOnce",
			"TestAClassWaitsForItsMachines",
			"TestStormAtCompletionLosesNoSignal",
			"TestLeakIsSeen",
			"TestTheCheckBeforeATakeover",
		},
		"life": {
			"TestJoinThatNeverHappensFailsOnTime",
			"TestDeadNodeIsReplaced",
			"TestHalfOfTheNodesDeadAtOnceAreHeld",
			"TestQuotaErrorsHealByThemselves",
			"TestWrongCredentialsHealWithTheSecret",
			"TestNodeIsUpdatedInPlace",
			"TestPreservedMachineFailsAndStays",
			"TestTokenIsMadeForTheJoinAndRemovedAfterIt",
			"TestNodeCarriesWhatItsTemplateSays",
			"TestACopyOfMachinesInAnotherNamespace",
		},
		"drain": {
			"TestBudgetThatLoosensEndsTheDrain",
			"TestBudgetThatNeverLoosensMeetsTheLadder",
			"TestPodsWithVolumesMoveOneAfterTheOther",
			"TestStuckDrainTakesRequests",
			"TestRulesSayWhoGoesAndWhen",
		},
		"sets": {
			"TestTheWholeLifeOfASet",
			"TestFiftyOrphansAreAdopted",
			"TestASetIsFrozenAndUnfrozen",
			"TestAnInstanceWithoutAMachineGoesAndNoOther",
			"TestExactlyTheMarkedMachinesGo",
		},
		"rollouts": {
			"TestAllMachinesAreReplacedWithinTheBounds",
			"TestSizeAndTemplateChangeInTheMiddle",
			"TestPausedAndResumed",
			"TestCancelledRolledBackAndUndone",
			"TestInPlaceUpdateAndBack",
			"TestRecreateMakesNoNewMachineBeforeTheLastOldOneIsGone",
			"TestOnDelete",
			"TestStagesAndAutomaticRollback",
		},
		"explain": {"TestWhatIsBlockedIsExplainedAsFields", "TestKubectlRunsThePlugin"},
		"capi": {
			"TestASetOfMillwrightFromZeroToThreeToOneToNothing",
			"TestADeploymentFromNothingToAnotherTemplateToNothing",
			"TestASetIsHandedOverAndBackWithoutReplacingAMachine",
			"TestABudgetBlocksAndTheMachineGoesOnceItAllows",
			"TestAnUnhealthyMachineIsReplaced",
		},
	}
}
