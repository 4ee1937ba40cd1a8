// SPDX-License-Identifier: Apache-2.0
// What `make demo` builds and runs: two servers and a client in one process, over real TCP.
// It is a program of its own since it needs less than the command, whose `hhsocket demo` does the same.
import Foundation
import HHSocketDemo

do {
    try await Demo { line in try FileHandle.standardOutput.write(contentsOf: Data((line + "\n").utf8)) }.run()
} catch {
    try? FileHandle.standardError.write(contentsOf: Data("error: \(error)\n".utf8))
    exit(1)
}
