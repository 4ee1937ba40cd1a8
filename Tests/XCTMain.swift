// SPDX-License-Identifier: Apache-2.0

import Foundation
import Testing

/// The entry point of the tests on Linux.
///
/// Without this file, SwiftPM would look for tests of XCTest, of which there are none, in the compiler's index. The
/// Makefile builds without an index, which takes a tenth less time.
@main
enum TestRunner {
    static func main() async {
        let arguments = CommandLine.arguments
        if arguments.drop(while: { $0 != "--testing-library" }).dropFirst().first == "swift-testing" {
            await Testing.__swiftPMEntryPoint() as Never
        }
        // With an entry point, `swift test` runs tests of XCTest, and others only if told to.
        let advice = "There are no tests of XCTest: swift test --disable-xctest --enable-swift-testing, or make test.\n"
        FileHandle.standardError.write(Data(advice.utf8))
        exit(64)
    }
}
