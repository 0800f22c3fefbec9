// Package capture holds the rooms of a recording: it has no code of its own.
//
//	live, recorded ─▶ session ─▶ counts
//
// Package session turns records with raw stacks into records with callchains. Package live gives it records as they are
// made, and package recorded those of recordings that exist; package counts says what came of it. What reads recordings
// stands beside them: view and format on profile on symbols, and verdict, which also records. All of them read and
// write by perfdata and output, and leave what takes rights to rights.
package capture
