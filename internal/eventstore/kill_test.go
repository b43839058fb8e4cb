package eventstore

const writerEnv = "ROLLSCOPE_TEST_EVENTS_WRITER"

func writeUntilKilled(string) {}
func removeServer()           {}
