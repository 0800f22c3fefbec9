module Main (main) where

import Control.Exception (ErrorCall (..), evaluate, throwIO, try)
import Data.Char (ord)
import Data.List (foldl', sortOn)
import qualified Data.Map.Strict as Map
import System.CPUTime (getCPUTime)

fib :: Int -> Integer
fib n = if n < 2 then fromIntegral n else fib (n - 1) + fib (n - 2)

count :: Int -> Map.Map String Int
count r = foldl' add Map.empty [1 .. 2000]
  where add m i = Map.insertWith (+) ("word" ++ show ((i * 7919 + r) `mod` 1000)) 1 m

hash :: String -> Int
hash = foldl' (\h c -> (h * 33 + ord c) `mod` 1000003) 5381

step :: Integer -> Int -> Int -> IO Int
step end r sum' = do
  now <- getCPUTime
  if now > end then pure sum' else do
    let text = concatMap fst (sortOn (\(w, n) -> (n, length w, w)) (Map.toList (count r)))
    h <- evaluate (hash text + fromIntegral (fib 18 `mod` 7))
    x <- try (throwIO (ErrorCall "unlucky")) :: IO (Either ErrorCall ())
    step end (r + 1) (sum' + h + either (const 1) (const 0) x)

main :: IO ()
main = do
  begin <- getCPUTime
  step (begin + 4 * 10 ^ (12 :: Int)) 1 0 >>= print
