// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import NIOConcurrencyHelpers
import NIOCore

/// The option for a shutdown at the end of standard input.
struct EndOfInputOption: ParsableArguments {
    @Flag(
        name: .customLong("until-eof"),
        help: "Shut down, as after SIGTERM, when standard input ends: for programs that start this one."
    )
    var endsWithInput = false

    /// Passes on SIGTERM at the end of standard input, if the option is given.
    ///
    /// - Returns: Whether standard input could not be read, which is reported on stderr.
    func watch(_ signals: Signals) -> NIOLockedValueBox<Bool> {
        let hasFailed = NIOLockedValueBox(false)
        guard self.endsWithInput else { return hasFailed }
        Thread.detachNewThread { [continuation = signals.continuation] in
            var buffer = ByteBuffer()
            do throws(Input.Failure) {
                while try Input.standard.append(to: &buffer) { buffer.clear() }
            } catch {
                StandardError.line("error: \(error)")
                hasFailed.withLockedValue { $0 = true }
            }
            continuation.yield(SIGTERM)
        }
        return hasFailed
    }
}
