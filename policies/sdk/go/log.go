package allot

// Level says how much a line of the log matters.
type Level uint8

// The levels.
const (
	DebugLevel Level = iota
	InfoLevel
	WarnLevel
	ErrorLevel
)

// Log writes a line to the run's log; to standard error where the policy runs natively. The log
// changes nothing.
func Log(level Level, line string) { write(level, line) }

// Info writes a line of interest to anyone.
func Info(line string) { write(InfoLevel, line) }

// Warn writes a line about something that looks wrong.
func Warn(line string) { write(WarnLevel, line) }
