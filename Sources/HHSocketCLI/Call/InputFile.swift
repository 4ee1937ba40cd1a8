// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation

/// A file given on the command line; `-` is stdin.
enum InputFile {
    /// Returns the file's name for errors.
    static func name(of file: String) -> String { file == "-" ? "stdin" : file }

    /// Returns the whole content.
    ///
    /// - Throws: `ExitCode.failure` if it cannot be read, which is reported on stderr.
    static func content(of file: String) throws(ExitCode) -> Data {
        do {
            if file == "-" { return try FileHandle.standardInput.readToEnd() ?? Data() }
            return try Data(contentsOf: URL(fileURLWithPath: file))
        } catch {
            throw Self.failure(file, error)
        }
    }

    /// Returns a handle to read the content piece by piece.
    ///
    /// - Throws: `ExitCode.failure` if it cannot be opened, which is reported on stderr.
    static func handle(of file: String) throws(ExitCode) -> FileHandle {
        do {
            return file == "-" ? .standardInput : try FileHandle(forReadingFrom: URL(fileURLWithPath: file))
        } catch {
            throw Self.failure(file, error)
        }
    }

    /// Reports that a file cannot be read.
    static func failure(_ file: String, _ error: any Error) -> ExitCode {
        StandardError.line("error: Cannot read \(Self.name(of: file)): \(error.localizedDescription)")
        return .failure
    }
}
