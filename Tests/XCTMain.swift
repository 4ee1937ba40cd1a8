// SPDX-License-Identifier: Apache-2.0

import Testing

/// The entry point of the tests on Linux.
///
/// Without this file, SwiftPM would look for tests of XCTest, of which there are none, in the compiler's index. The
/// Makefile builds without an index, which takes a tenth less time.
@main
enum TestRunner {
    static func main() async {
        let arguments = CommandLine.arguments
        if arguments.contains("--dump-tests-json") {
            // `swift test --filter` looks for tests of XCTest, too.
            print(#"{"tests": []}"#)
        } else if arguments.drop(while: { $0 != "--testing-library" }).dropFirst().first == "swift-testing" {
            await Testing.__swiftPMEntryPoint() as Never
        }
        // `swift test` also runs the program without naming a library, for XCTest.
    }
}
