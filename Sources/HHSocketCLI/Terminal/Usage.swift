// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// Wrong usage that the library detects.
enum Usage {
    /// Returns the settings that `body` makes of arguments alone, so that an error is one of the arguments.
    ///
    /// - Throws: `ValidationError`.
    static func checked<Settings>(_ body: () throws(SocketError) -> Settings) throws -> Settings {
        do throws(SocketError) {
            return try body()
        } catch {
            throw ValidationError(error.message)
        }
    }
}

/// Throws an error of usage unless a condition holds.
func require(_ isMet: Bool, _ message: @autoclosure () -> String) throws(ValidationError) {
    if !isMet { throw ValidationError(message()) }
}

extension ArgumentHelp {
    /// The help of an argument, and the name that stands for its value.
    static func value(_ name: String, _ help: String) -> ArgumentHelp { ArgumentHelp(help, valueName: name) }
}
