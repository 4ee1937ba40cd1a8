import ArgumentParser
import Foundation

/// A file of which the whole content is wanted; `-` is stdin.
enum InputFile {
    static func content(of file: String) throws -> Data {
        do {
            if file == "-" { return try FileHandle.standardInput.readToEnd() ?? Data() }
            return try Data(contentsOf: URL(fileURLWithPath: file))
        } catch {
            throw ValidationError("Cannot read \(file == "-" ? "stdin" : file): \(error.localizedDescription)")
        }
    }
}
